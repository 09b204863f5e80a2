"""Behind ``scripts/datasets.sh``: checking the data sets on disk and preparing some of them."""
