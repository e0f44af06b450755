"""What ``covey plan`` does between reading files and printing an answer; the planning itself is the scheduler's."""
