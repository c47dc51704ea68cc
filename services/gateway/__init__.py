"""The HTTP side of Afterturn: turns in; contexts, memory and live events out. Everything it needs is injected."""
