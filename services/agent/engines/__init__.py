"""Engines behind the one interface of `services.agent.engine`."""
