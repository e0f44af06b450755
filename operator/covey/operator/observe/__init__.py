"""What is, on the API server: watched, kept, and asked for where no watch tells it. All waiting and reading is here."""
