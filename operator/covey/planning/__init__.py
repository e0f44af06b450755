"""Steps of ``covey plan`` between reading files and printing an answer; the planning itself is the scheduler's."""
