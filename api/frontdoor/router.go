// Package frontdoor is the HTTP listener of the product: which path answers what, transport settings, and the orderly end. The
// protocols themselves are in their own packages.
package frontdoor

import (
	"net/http"
	"slices"
	"strings"

	"signalbox/api/problem"
)

// Route is one path.
type Route struct {
	Path string
	// Prefix makes the route answer everything below Path too; the rest of the path is given to the handler by Rest.
	Prefix  bool
	Methods []string
	Handler http.Handler
	// On tells whether the route is switched on; nil means always. A route that is off answers an empty 404, as existing
	// probes expect.
	On func() bool
	// Summary is one line for the API description, Request the name of the body's schema in it. Described lists the paths there of a
	// route with Prefix, without Path.
	Summary, Request string
	Described        []string
}

// Router finds routes by exact path, else by the longest prefix.
type Router struct {
	exact    map[string]*Route
	prefixes []*Route
	// AnthropicPath, when set, begins the paths whose unknown routes answer in Anthropic's shape.
	AnthropicPath string
}

// NewRouter returns a Router over the routes; of two with the same path the later one wins.
func NewRouter(routes []Route) *Router {
	router := &Router{exact: make(map[string]*Route)}
	for i := range routes {
		route := &routes[i]
		if route.Prefix {
			router.prefixes = append(router.prefixes, route)
			continue
		}
		router.exact[route.Path] = route
	}
	slices.SortStableFunc(router.prefixes, func(x, y *Route) int { return len(y.Path) - len(x.Path) })
	return router
}

// ServeHTTP implements http.Handler. It echoes x-request-id on every answer.
func (router *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id := r.Header.Get("X-Request-Id"); id != "" {
		w.Header().Set("X-Request-Id", id)
	}
	route := router.exact[r.URL.Path]
	if route == nil {
		for _, candidate := range router.prefixes {
			if rest, ok := strings.CutPrefix(r.URL.Path, candidate.Path); ok && rest != "" {
				route = candidate
				break
			}
		}
	}
	if route == nil {
		router.unknown(w, r)
		return
	}
	if route.On != nil && !route.On() {
		if !slices.Contains(route.Methods, r.Method) {
			w.Header().Set("Allow", allow(route.Methods))
		}
		bare(w, r, http.StatusNotFound, "No model serves "+r.URL.Path+" yet")
		return
	}
	if !slices.Contains(route.Methods, r.Method) && !(r.Method == http.MethodHead && slices.Contains(route.Methods, http.MethodGet)) {
		w.Header().Set("Allow", allow(route.Methods))
		bare(w, r, http.StatusMethodNotAllowed, "Method "+r.Method+" is not allowed on "+r.URL.Path)
		return
	}
	route.Handler.ServeHTTP(w, r)
}

func allow(methods []string) string {
	list := make([]string, 0, len(methods)+1)
	for _, method := range methods {
		list = append(list, method)
		if method == http.MethodGet {
			list = append(list, http.MethodHead)
		}
	}
	return strings.Join(list, ",")
}

// bare answers without a body, as existing probes expect, unless the client says that it reads JSON.
func bare(w http.ResponseWriter, r *http.Request, status int, message string) {
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		(&problem.Problem{Status: status, Message: message}).Write(w)
		return
	}
	w.WriteHeader(status)
}

func (router *Router) unknown(w http.ResponseWriter, r *http.Request) {
	message := "Route not found: " + r.Method + " " + r.URL.Path
	if router.AnthropicPath != "" && strings.HasPrefix(r.URL.Path, router.AnthropicPath+"/") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write(anthropicNotFound(message))
		return
	}
	(&problem.Problem{Status: http.StatusNotFound, Message: message}).Write(w)
}
