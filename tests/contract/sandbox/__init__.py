"""What every kind of jail must hold, held against every backend."""
