"""The paper's gridworld experiments, one module per figure: settings, run, analysis."""
