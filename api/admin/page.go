package admin

import "html/template"

var page = template.Must(template.New("docs").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}} {{.Version}}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222; background: #fff }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } a { color: #8ab4f8 } code { background: #2a2a2a } }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .4rem .6rem; border-bottom: 1px solid #8884; vertical-align: top }
code { background: #f2f2f2; padding: .1rem .3rem; border-radius: 3px }
.method { font-weight: 600 }
</style>
<h1>{{.Title}}</h1>
<p>Version {{.Version}}. The machine-readable description is at <a href="/openapi.json">/openapi.json</a>.</p>
<table>
<tr><th>Method</th><th>Path</th><th>What it does</th></tr>
{{range .Operations}}<tr><td class="method">{{.Method}}</td><td><code>{{.Path}}</code></td><td>{{.Summary}}</td></tr>
{{end}}</table>
</html>
`))
