"""All malformed inputs, by what is wrong."""

from cases_asked import ASKS, RULES, SERVICE
from cases_data import COLUMNS, DESCRIBE, FILES, SETTINGS
from cases_lists import LISTS, MEASURES, PYTHON, REPORTS
from cases_runs import CHOICES, MODELS, OUTPUTS, RUNS
from table import Case

SECTIONS: dict[str, list[Case]] = {
    "Files of interactions": FILES,
    "Columns, ids and times": COLUMNS,
    "Settings of `divmf train`": SETTINGS,
    "Known datasets and splits": DESCRIBE,
    "Run folders": RUNS,
    "Choosing a point, and its lists": CHOICES,
    "Saved models": MODELS,
    "Rules": RULES,
    "Filters, new people, new items": ASKS,
    "The service, runs repeated and replayed": SERVICE,
    "Outputs": OUTPUTS,
    "Lists to rerank": LISTS,
    "Lists to measure": MEASURES,
    "Audits, comparisons, experiments, plans": REPORTS,
    "From Python": PYTHON,
}
CASES = [(section, case) for section, cases in SECTIONS.items() for case in cases]
