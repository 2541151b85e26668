"""The dashboards for Grafana: what each panel asks Prometheus."""
