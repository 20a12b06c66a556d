"""Mathematics on one client's data: half-problems, their solvers, starts and the final refit."""
