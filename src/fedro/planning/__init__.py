"""How many clients to sample each round (n̂), and how many Byzantine ones to tolerate (b̂)."""

from fedro.planning.comparison import Scenario, scenarios
from fedro.planning.planner import Outlook, Plan, SampleSize, plan

__all__ = ["Outlook", "Plan", "SampleSize", "Scenario", "plan", "scenarios"]
