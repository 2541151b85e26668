"""Files of cases in other tools' formats, turned into the shape that ``suite.py`` reads."""
