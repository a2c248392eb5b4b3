"""What is shipped besides the packages: images, rules, dashboards, runbooks, the chart."""
