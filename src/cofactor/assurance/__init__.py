"""What was promised, what was paid, and whether it held: ledgers, budgets, forecasts and audits."""
