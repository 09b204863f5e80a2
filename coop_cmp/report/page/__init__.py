"""All runs of an output directory as one HTML file to look at: ``python -m coop_cmp.report.page``.

The runs become rows (`rows`), pictures of each row (`details`), what differs between
runs (`records`) and what is not there (`missing`); `build` puts them and the charts into one file.
"""
