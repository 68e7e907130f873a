"""The verifier watches itself: known answers among the candidates, quarantine, alarms, unknown rates."""
