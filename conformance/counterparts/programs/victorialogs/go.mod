module counterparts/victorialogs

go 1.26

tool github.com/VictoriaMetrics/VictoriaLogs/app/victoria-logs

require github.com/VictoriaMetrics/VictoriaLogs v1.52.1
