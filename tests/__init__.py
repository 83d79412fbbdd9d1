"""The tests: values, not timings."""
