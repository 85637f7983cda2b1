package frontend

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"signalbox/api/frontdoor"
	"signalbox/api/problem"
)

// Service is what a route extension may ask of the frontend. It is safe for use by many goroutines.
type Service interface {
	// Ready tells whether the service takes requests: it is not draining.
	Ready() bool
	// AnyModelReady tells whether some model can be served now, ModelReady whether the one can.
	AnyModelReady() bool
	ModelReady(name string) bool
	// Models lists the models that can be served now.
	Models() []string
}

// Extension is a route that is linked into the program: a GET on one path that answers with JSON.
type Extension struct {
	// Path is static and begins with "/"; it must not be one that the frontend has.
	Path string
	// Summary is one line for the API description.
	Summary string
	// Answer returns the status and what is written as JSON; an error answers 500 without its text, which goes to the log.
	Answer func(r *http.Request, s Service) (status int, body any, err error)
}

var (
	extensionsMu sync.Mutex
	extensions   = make(map[string][]Extension)
)

// RegisterExtension links routes into the program under the name that --frontend-route-extension switches them on by. Call it from an
// init function; of two with the same name the later wins.
func RegisterExtension(name string, routes ...Extension) {
	extensionsMu.Lock()
	defer extensionsMu.Unlock()
	extensions[name] = routes
}

// Extensions returns the routes that were linked in under the names.
func Extensions(names []string) ([]Extension, error) {
	extensionsMu.Lock()
	defer extensionsMu.Unlock()
	var list []Extension
	for _, name := range names {
		routes, ok := extensions[name]
		if !ok {
			linked := "none is linked in"
			if len(extensions) > 0 {
				linked = "linked in are " + strings.Join(slices.Sorted(maps.Keys(extensions)), ", ")
			}
			return nil, fmt.Errorf("--frontend-route-extension %q: Python entry points cannot be loaded, and no Go extension has this name (%s); register one with frontend.RegisterExtension and build the program with it", name, linked)
		}
		list = append(list, routes...)
	}
	return list, nil
}

// extensionRoutes makes routes of extensions; a path that is taken is an error.
func (f *Frontend) extensionRoutes(taken []frontdoor.Route) ([]frontdoor.Route, error) {
	var routes []frontdoor.Route
	for _, extension := range f.options.Extensions {
		if !strings.HasPrefix(extension.Path, "/") || strings.ContainsAny(extension.Path, "{}*?#") {
			return nil, fmt.Errorf("route extension: path %q is not static: it must begin with / and hold none of {}*?#", extension.Path)
		}
		own := []frontdoor.Route{{Path: descriptionPath}, {Path: pagePath, Prefix: true}, {Path: strings.TrimSuffix(pagePath, "/")}}
		for _, route := range slices.Concat(taken, routes, own) {
			if route.Path == extension.Path || route.Prefix && strings.HasPrefix(extension.Path, route.Path) {
				return nil, fmt.Errorf("route extension: path %s is taken", extension.Path)
			}
		}
		routes = append(routes, frontdoor.Route{Path: extension.Path, Methods: []string{http.MethodGet}, Summary: extension.Summary,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.answerExtension(w, r, extension) })})
	}
	return routes, nil
}

func (f *Frontend) answerExtension(w http.ResponseWriter, r *http.Request, extension Extension) {
	status, body, err := extension.Answer(r, service{f})
	var text []byte
	if err == nil {
		text, err = json.Marshal(body)
	}
	if err != nil {
		f.options.Logger.Error("a route extension failed", "path", extension.Path, "error", err)
		(&problem.Problem{Status: http.StatusInternalServerError, Message: "frontend route extension failed"}).Write(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// service shows the frontend to extensions.
type service struct{ frontend *Frontend }

// Ready implements Service.
func (s service) Ready() bool { return !s.frontend.door.Draining() }

// AnyModelReady implements Service.
func (s service) AnyModelReady() bool { return catalog(s).AnyReady() }

// ModelReady implements Service.
func (s service) ModelReady(name string) bool { return s.frontend.Ready(name) }

// Models implements Service.
func (s service) Models() []string {
	var names []string
	for _, listing := range catalog(s).List() {
		names = append(names, listing.Name)
	}
	return names
}
