package admin

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// Operation is one method of one path, for the API description.
type Operation struct {
	Method, Path, Summary string
	// Request names the schema of the body; "" for none.
	Request string
}

// schemas describe the bodies. They are looser than what the handlers demand where JSON Schema cannot say it.
//
//go:embed schemas.json
var schemas []byte

// Description answers GET /openapi.json and the page that shows it.
type Description struct {
	Title, Version string
	Operations     []Operation
}

// ServeJSON answers GET /openapi.json with an OpenAPI 3.1 document of what is served.
func (d *Description) ServeJSON(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, d.document())
}

func (d *Description) document() map[string]any {
	paths := make(map[string]map[string]any)
	for _, operation := range d.Operations {
		methods := paths[operation.Path]
		if methods == nil {
			methods = make(map[string]any)
			paths[operation.Path] = methods
		}
		methods[strings.ToLower(operation.Method)] = d.operation(operation)
	}
	return map[string]any{
		"openapi":    "3.1.0",
		"info":       map[string]any{"title": d.Title, "version": d.Version},
		"paths":      paths,
		"components": map[string]any{"schemas": json.RawMessage(schemas)},
	}
}

// statuses are those of refusals and failures, with what they mean.
var statuses = map[string]string{
	"400": "The request is wrong; the message names the field",
	"404": "Unknown model or route, or nobody serves this kind of request yet",
	"405": "Another method is wanted: see Allow",
	"408": "The body did not arrive in time",
	"413": "The body is too large",
	"415": "The body is not JSON",
	"422": "A member is missing or of the wrong type",
	"429": "The worker asks to slow down: try again after Retry-After",
	"431": "Too much metadata in headers",
	"499": "The request was cancelled",
	"500": "A worker or the service failed",
	"501": "A feature that is not there",
	"503": "Nobody can serve the request now: try again after Retry-After",
	"504": "The worker answered too late",
	"529": "Overloaded: try again after Retry-After",
}

// readStatuses are those that a request without a body can meet.
var readStatuses = []string{"404", "405", "503"}

func (d *Description) operation(o Operation) map[string]any {
	responses := map[string]any{"200": map[string]any{"description": "Success"}}
	for status, text := range statuses {
		if o.Method == http.MethodGet && !slices.Contains(readStatuses, status) {
			continue
		}
		responses[status] = map[string]any{"description": text, "content": map[string]any{
			"application/json": map[string]any{"schema": map[string]any{"$ref": "#/components/schemas/Error"}}}}
	}
	operation := map[string]any{"summary": o.Summary, "operationId": operationID(o), "responses": responses}
	if o.Request != "" {
		operation["requestBody"] = map[string]any{"required": true, "content": map[string]any{
			"application/json": map[string]any{"schema": map[string]any{"$ref": "#/components/schemas/" + o.Request}}}}
	}
	if strings.Contains(o.Path, "{") {
		operation["parameters"] = pathParameters(o.Path)
	}
	return operation
}

func pathParameters(path string) []any {
	var list []any
	for _, segment := range strings.Split(path, "/") {
		if strings.HasPrefix(segment, "{") {
			list = append(list, map[string]any{"name": strings.Trim(segment, "{}"), "in": "path", "required": true,
				"schema": map[string]any{"type": "string"}})
		}
	}
	return list
}

func operationID(o Operation) string {
	words := strings.FieldsFunc(o.Path, func(r rune) bool { return strings.ContainsRune("/{}._-", r) })
	return strings.ToLower(o.Method) + "_" + strings.Join(words, "_")
}

// ServePage answers GET /docs/: one page without scripts or outside resources, so that it works offline.
func (d *Description) ServePage(w http.ResponseWriter, _ *http.Request) {
	operations := slices.Clone(d.Operations)
	slices.SortStableFunc(operations, func(x, y Operation) int { return strings.Compare(x.Path, y.Path) })
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, struct {
		Title, Version string
		Operations     []Operation
	}{d.Title, d.Version, operations})
}

// RedirectToPage answers GET /docs.
func RedirectToPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "/docs/")
	w.WriteHeader(http.StatusSeeOther)
}
