"""The month: figures of what happened and what it cost, and the same figures in four forms."""
