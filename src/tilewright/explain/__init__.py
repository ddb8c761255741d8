"""Why a program is as it is: which kernel holds an operator, what else was priced, how its data is stored and how it is
scheduled.

Promises: facts are made on request, from the program after the passes, by the plan's own templates and prices and by
the schedule's own steps; nothing is said that was not computed. Compilation does not compute them.
"""
