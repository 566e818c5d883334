"""A package, unlike the other directories of tests: so the browser ends with its last test in a row.

Playwright keeps an event loop in the thread of the tests while it runs; asynchronous tests that follow could not run.
"""
