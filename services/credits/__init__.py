"""Credits: what each use of a model costs, booked once (rules C1 and C2)."""
