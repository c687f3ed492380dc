"""What a terminal or a log shows of one run and of many."""
