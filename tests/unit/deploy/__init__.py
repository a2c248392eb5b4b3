"""The deliverables besides the packages: images, rules, dashboards, runbooks, the chart."""
