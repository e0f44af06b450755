"""What has failed: counted once, noted on objects, and judged by the restart policy of its role."""
