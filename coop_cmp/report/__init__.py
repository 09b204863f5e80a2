"""From stored results to tables and figures."""

FORMATS = ("png", "svg", "pdf")  # of figures
COLUMN = 3.4  # inches: one column of a two-column paper
