import torch

from divmf.engine.device import device_of
from divmf.estimator import DivMF
from divmf.models.config import TrainConfig
from divmf.train.fitting import fit
from divmf.train.runs import Run


def test_auto_is_the_cpu_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_of("auto") == device_of("cpu") == torch.device("cpu")


def test_processes_of_a_machine_take_its_gpus_in_turn(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = []
    for rank in range(4):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        found.append((device_of("auto"), device_of("cuda"), device_of("cpu")))
    assert found == [(torch.device("cuda", rank % 2),) * 2 + (torch.device("cpu"),) for rank in range(4)]


def test_a_gpu_that_is_not_there_is_refused_before_anything_is_read(monkeypatch, divmf, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = divmf("train", tmp_path / "nowhere.csv", "-o", tmp_path / "run", "--device", "cuda")
    assert done.code == 2
    assert "device='cuda' is not there: torch" in done.err
    assert "choose auto or cpu, or install torch for CUDA" in done.err
    assert divmf("train", "synthetic", "-o", tmp_path / "run", "--device", "tpu").code == 2


def test_a_run_goes_on_on_another_device(split, tmp_path):
    """The device is no part of what a run is."""
    config = TrainConfig(preset="paper", accuracy_epochs=1, diversity_epochs=1, device="auto")
    list(fit(Run.start(tmp_path, split, config), split, config))
    more = TrainConfig(preset="paper", accuracy_epochs=1, diversity_epochs=2, device="cpu")
    assert len(list(fit(Run.start(tmp_path, split, more), split, more))) == 1


def test_adam_goes_on_where_the_parameters_are(split, tmp_path):
    straight = DivMF(preset="paper", accuracy_epochs=3, diversity_epochs=2, device="cpu").fit(split, tmp_path / "one")
    for epochs in (1, 2):
        stopped = DivMF(preset="paper", accuracy_epochs=3, diversity_epochs=epochs).fit(split, tmp_path / "two")
    assert stopped.curve.frame.drop("seconds").equals(straight.curve.frame.drop("seconds"))
