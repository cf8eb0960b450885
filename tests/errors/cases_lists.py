"""Lists, catalogs and held-out data that cannot be measured, reranked, audited or compared; calls from Python."""

import shutil

from table import Case, document, frame, text

RERANK = "divmf rerank {} -o out.csv -q"
EVALUATE = "divmf evaluate {} --test {} --catalog {}"
AUDIT = "divmf audit {} --catalog {} -o out.html -q"
ROWS = "user_id,item_id,score\n"

LISTS = [
    Case("lists that are not there", RERANK.format("list.csv"), names="list.csv"),
    Case("lists without a row", RERANK.format("x.csv"), text("x.csv", ROWS), "x.csv"),
    Case("scores that are words", RERANK.format("x.csv"), text("x.csv", ROWS + "a,b,high\n"), "x.csv"),
    Case("scores that are dates", RERANK.format("x.csv"), text("x.csv", ROWS + "a,b,2020-01-01\n"), "x.csv"),
    Case("scores that are not a number", RERANK.format("x.csv"), text("x.csv", ROWS + "a,b,nan\n"), "x.csv"),
    Case("infinite scores", RERANK.format("x.csv"), text("x.csv", ROWS + "a,b,inf\n"), "x.csv"),
    Case("missing scores", RERANK.format("x.csv"), text("x.csv", ROWS + "a,b,\na,c,1\n"), "x.csv"),
    Case("scores that are records", RERANK.format("x.parquet"),
         frame("x.parquet", {"user_id": [1], "item_id": [2], "score": [{"a": 1}]}), "x.parquet"),
    Case("scores that are lists", RERANK.format("x.parquet"),
         frame("x.parquet", {"user_id": [1], "item_id": [2], "score": [[1.0]]}), "x.parquet"),
    Case("an item twice in a list", RERANK.format("x.csv"), text("x.csv", ROWS + "a,b,1\na,b,2\n"), "x.csv"),
    Case("longer lists than there are items", RERANK.format("wide.csv -k 41")),
    Case("lists of no items", RERANK.format("wide.csv -k 0")),
    Case("a reranker that does not exist", RERANK.format("wide.csv --method marked")),
    Case("a setting that does not exist", RERANK.format("wide.csv --method bayes_rule --set beta=1")),
    Case("a setting out of its range", RERANK.format("wide.csv --method bayes_rule --set a=-1")),
    Case("a setting without a value", RERANK.format("wide.csv --method bayes_rule --set a")),
    Case("a share above one", RERANK.format("wide.csv --replace 200%")),
    Case("a share for a method that has none", RERANK.format("wide.csv --method kwon --replace 20%")),
    Case("a method that needs the training data", RERANK.format("wide.csv --method xquad")),
    Case("training data of ids of another type", RERANK.format("wide.csv --method xquad --train x.csv"),
         text("x.csv", "user_id,item_id\n1,2\n"), "x.csv"),
    Case("a catalog without items", RERANK.format("wide.csv --catalog x.csv"), text("x.csv", "name\na\n"), "x.csv"),
    Case("a catalog that lacks items of the lists", RERANK.format("wide.csv --catalog x.csv"),
         text("x.csv", "item_id\nsome\nother\n"), "wide.csv"),
    Case("a run that is no run", RERANK.format("wide.csv --method kwon --run data"), names="data"),
    Case("no lists", "divmf rerank -o out.csv"),
    Case("no output", "divmf rerank wide.csv"),
]  # fmt: skip

MEASURES = [
    Case("lists that are not there", EVALUATE.format("list.csv", "test.csv", "catalog.csv"), names="list.csv"),
    Case("held-out data that is not there", EVALUATE.format("lists.csv", "tests.csv", "catalog.csv"),
         names="tests.csv"),
    Case("a catalog that is not there", EVALUATE.format("lists.csv", "test.csv", "items.csv"), names="items.csv"),
    Case("a catalog with an empty id", EVALUATE.format("lists.csv", "test.csv", "x.csv"),
         text("x.csv", "item_id,title\n,tea\nb,jam\n"), "x.csv"),
    Case("a catalog that lacks items of the lists", EVALUATE.format("lists.csv", "test.csv", "x.csv"),
         text("x.csv", "item_id\nsome\nother\n"), "lists.csv"),
    Case("held-out data of other users", EVALUATE.format("lists.csv", "x.csv", "catalog.csv"),
         text("x.csv", "user_id,item_id\nnobody,nothing\n"), "x.csv"),
    Case("held-out data without a row", EVALUATE.format("lists.csv", "x.csv", "catalog.csv"),
         text("x.csv", "user_id,item_id\n"), "x.csv"),
    Case("training data of other items", EVALUATE.format("lists.csv", "test.csv", "catalog.csv --train x.csv"),
         text("x.csv", "user_id,item_id\nnobody,nothing\n"), "x.csv"),
    Case("a length of -2", EVALUATE.format("lists.csv", "test.csv", "catalog.csv -k -2")),
    Case("endless resamples", EVALUATE.format("lists.csv", "test.csv", "catalog.csv --resamples 100000000")),
    Case("one resample", EVALUATE.format("lists.csv", "test.csv", "catalog.csv --resamples 1")),
    Case("no catalog", "divmf evaluate lists.csv --test test.csv"),
    Case("groups by a column that the catalog lacks", EVALUATE.format("lists.csv", "test.csv", "catalog.csv") +
         " --groups seller"),
]  # fmt: skip

REPORTS = [
    Case("lists shorter than what is shown", AUDIT.format("lists.csv", "catalog.csv -k 9"), names="lists.csv"),
    Case("titles that are lists", AUDIT.format("lists.csv", "x.parquet"),
         frame("x.parquet", {"item_id": ["a"], "title": [["tea"]]}), "x.parquet"),
    Case("titles that are bytes", AUDIT.format("lists.csv", "x.parquet"),
         frame("x.parquet", {"item_id": ["a"], "title": [b"tea"]}), "x.parquet"),
    Case("a page that is no page", "divmf audit lists.csv --catalog catalog.csv -o out.pdf", names="out.pdf"),
    Case("a page in the place of another", AUDIT.format("lists.csv", "catalog.csv"), text("out.html", "<p>mine"),
         "out.html"),
    Case("a negative budget", AUDIT.format("lists.csv", "catalog.csv --budget -1")),
    Case("a comparison with other data", "divmf compare run -o out --also other",
         lambda: copied("run", "other", fingerprint="0"), "other"),
    Case("a run compared with itself", "divmf compare run -o out --also run", names="run"),
    Case("a comparison with a reranker that does not exist", "divmf compare run -o out --methods kwan"),
    Case("groups without a catalog", "divmf compare run -o out --groups seller"),
    Case("compared groups that the catalog lacks", "divmf compare run -o out --catalog catalog.csv --groups seller"),
    Case("audited groups that the catalog lacks", AUDIT.format("lists.csv", "catalog.csv") + " --groups seller"),
    Case("a loss that is no share", "divmf compare run -o out --losses 5%,half"),
    Case("a question that was not asked", "divmf reproduce q6 --dataset events.csv -o out"),
    Case("one seed, of which there is no interval", "divmf reproduce q1 --dataset events.csv -o out --seeds 1"),
    Case("a recipe that is no TOML", "divmf reproduce q1 --dataset events.csv -o out --recipe x.toml",
         text("x.toml", "k = = 5"), "x.toml"),
    Case("a recipe without what it needs",
         "divmf reproduce q1 --dataset events.csv -o out --recipe x.toml",
         text("x.toml", "[settings]\ncolour = 1\n"), "x.toml"),
    Case("an experiment in a folder of other things", "divmf reproduce q1 --dataset events.csv -o data",
         text("data/mine.txt", "mine"), "data"),
    Case("a plan for no users", "divmf plan --users 0 --items 10 --interactions 10 --no-calibration"),
]  # fmt: skip


def copied(run: str, to: str, fingerprint: str) -> None:
    """A run that says that it is of other data."""
    shutil.copytree(run, to)
    document(f"{to}/config.json", data__fingerprint=fingerprint)()


PYTHON = [
    Case("one id for several", 'model.recommend("C-1")'),
    Case("a user that nobody knows", 'model.recommend(["nobody"])'),
    Case("a list of no items", "model.recommend_frame(k=0)"),
    Case("a history of nothing", "model.recommend(history=[])"),
    Case("one of two histories of nothing", 'model.recommend(history=[["i00001"], []])'),
    Case("a history of unknown items", 'model.recommend(history=["tea", "jam"])'),
    Case("one id for a history", 'model.recommend(history="i00001")'),
    Case("one number for a history", "model.recommend(history=5)"),
    Case("a history of numbers and words", 'model.recommend(history=[5, "i00001"])'),
    Case("one id for the items that a new one is like", 'model.with_items({"tea": "i00001"})'),
    Case("a history of a known user", 'model.recommend(["u00001"], history=["i00001"])'),
    Case("histories without a row", 'model.recommend_frame(pl.DataFrame({"user_id": [], "item_id": []}))'),
    Case("neither users nor a history", "model.recommend()"),
    Case("a new item like nothing", 'model.with_items({"tea": []})'),
    Case("similar items of an unknown one", 'model.similar_items(["tea"])'),
    Case("a budget that no model fits into", "divmf.DivMF(budget=1e-9).fit(split)"),
    Case("a negative weight",
         'divmf.Interactions.from_frame(pl.DataFrame({"user_id": [1], "item_id": [2], "w": [-3]}), weight="w")'),
    Case("what was not fitted", "divmf.DivMF().at(ndcg_drop=0.05)"),
    Case("a setting that does not exist", "divmf.DivMF(colour=1)"),
    Case("a setting out of its range", "divmf.DivMF(k=0)"),
    Case("a frame that is none", "divmf.Interactions.from_frame([1, 2])"),
    Case("a frame without users", 'divmf.Interactions.from_frame(pl.DataFrame({"item_id": [1]}))'),
    Case("arrays of different shapes", "divmf.TopK.from_arrays(np.zeros((2, 3), int), np.zeros((2, 2)), [1, 2], [1])"),
    Case("items that are decimals", "divmf.TopK.from_arrays(np.zeros((1, 2)), np.zeros((1, 2)), [1], [1, 2])"),
    Case("an item twice", "divmf.TopK.from_arrays(np.zeros((1, 2), int), np.zeros((1, 2)), [1], [1, 2])"),
    Case("factors that are not a number",
         "divmf.diversify(np.full((60, 2), np.nan), np.ones((40, 2)), split)"),
    Case("factors that do not multiply", "divmf.diversify(np.ones((60, 2)), np.ones((40, 3)), split)"),
    Case("factors of other users", "divmf.diversify(np.ones((6, 2)), np.ones((40, 2)), split)"),
    Case("factors beyond all scores", "divmf.diversify(np.full((60, 2), 1e19), np.ones((40, 2)), split)"),
    Case("scores of what does not score", "divmf.diversify(7, split)"),
    Case("a part that holds nothing out", 'divmf.evaluate(model.lists(), split, part="train")'),
    Case("a model that is not there", 'divmf.load("models")'),
    Case("a model saved over other files", 'model.save("data")', text("data/mine.txt", "mine")),
    Case("a model saved into the current folder", 'model.save(".")'),
    Case("shares that leave nothing", "divmf.hold_out(split.train, np.random.default_rng(0), 0.5, 0.6)"),
    Case("a core of a negative size", "split.train.k_core(-1)"),
    Case("candidates that are no lists", "divmf.rerank.bayes_rule(7, 5)"),
]  # fmt: skip
