"""All runs of an output directory as one HTML file to look at: ``coop-cmp report``.

The runs become rows (`rows`), pictures of each row (`details`), what differs between
runs (`records`) and what is not there (`missing`); `build` puts them and the charts into one file.
"""
