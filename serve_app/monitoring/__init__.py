"""Rolling measurements of finished requests: histograms that merge, windows of them, and their names."""

from serve_app.monitoring.figures import Figures
from serve_app.monitoring.histogram import Histogram
from serve_app.monitoring.windows import WINDOWS, Slice, Windows

__all__ = ["WINDOWS", "Figures", "Histogram", "Slice", "Windows"]
