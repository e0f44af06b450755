"""The observed state: watched, cached, and asked for where no watch shows it. All waiting and reading is here."""
