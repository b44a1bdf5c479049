"""A population of players that is made up, matched in simulated time by the very functions that backends run."""
