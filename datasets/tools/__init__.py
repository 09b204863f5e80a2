"""Behind ``coop-cmp datasets``: checking the data sets on disk and preparing some of them."""
