"""Why a speculative step costs what it costs: measured pairs beside a model, and the likely causes."""
