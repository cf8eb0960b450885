"""Charts (altair) and self-contained HTML pages (jinja2).

Import the module you need, such as `divmf.reports.charts`, where you need it: altair takes a second to load.
"""
