"""How many clients to sample each round (n̂), and how many Byzantine ones to tolerate (b̂)."""

from fedro.planning.planner import Outlook, Plan, plan

__all__ = ["Outlook", "Plan", "plan"]
