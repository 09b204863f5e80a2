"""From stored results to tables and figures."""
