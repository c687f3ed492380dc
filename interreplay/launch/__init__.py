"""Running, whatever is run: `settings` -> `kinds` -> `running` -> `screen`.

settings   flags and JSON files into checked settings       knows nobody
screen     card, progress bar, table of many runs           knows nobody
running    folder, journal, Ray, one run, many runs         knows screen, and a kind's shape
kinds      replay's runs, RLlib's own, ...: one file each   knows settings and running
*_command  argv -> settings -> kind -> running -> exit code
"""
