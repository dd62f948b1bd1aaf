"""The bench: widgets that make a Plan, and figures that are functions of Runs and their events."""
