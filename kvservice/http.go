package kvservice

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"strings"
)

// maxBody bounds request bodies, in bytes.
const maxBody = 8 << 20

// defaultGroup is the routing group of whoever names none.
const defaultGroup = "default"

// failure is an error as clients see it.
type failure struct {
	status int
	text   string
	// parse marks bodies that cannot be read, which some services answer in plain text.
	parse bool
	// details is a JSON object that explains the error further; nil for none.
	details []byte
}

// Error implements error.
func (f *failure) Error() string { return f.text }

// answer writes a value as JSON.
func answer(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil { // every value here can be written
		status, text = http.StatusInternalServerError, []byte(`{"error":"internal error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // whoever asked may have gone
}

type done struct {
	Status string `json:"status"`
}

type failed struct {
	Error   string          `json:"error"`
	Details json.RawMessage `json:"details,omitempty"`
}

// reply answers with a value, or with an error.
func reply(w http.ResponseWriter, status int, value any, err error) {
	var known *failure
	switch {
	case err == nil:
		answer(w, status, value)
	case errors.As(err, &known):
		answer(w, known.status, failed{known.text, known.details})
	default:
		answer(w, http.StatusInternalServerError, failed{Error: err.Error()})
	}
}

// read decodes a body; missing names the required members that are not there.
func read(r *http.Request, into any, missing func() string) error {
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return &failure{status: http.StatusRequestEntityTooLarge, text: "length limit exceeded", parse: true}
	case err != nil:
		return &failure{status: http.StatusBadRequest, text: "the body cannot be read: " + err.Error(), parse: true}
	}
	if !json.Valid(text) {
		return &failure{status: http.StatusBadRequest, text: "Failed to parse the request body as JSON", parse: true}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return cannotDeserialize(misfit(err))
	}
	if name := missing(); name != "" {
		return &failure{status: http.StatusUnprocessableEntity, text: "Failed to deserialize the JSON body into the target type: missing field `" + name + "`", parse: true}
	}
	return nil
}

// misfit says in a client's words which member of a body has a value of another type than it should.
func misfit(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	wanted := "an object"
	switch kind := wrong.Type.Kind(); kind {
	case reflect.String:
		wanted = "a string"
	case reflect.Bool:
		wanted = "true or false"
	case reflect.Slice, reflect.Array:
		wanted = "an array"
	case reflect.Float32, reflect.Float64:
		wanted = "a number"
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		wanted = fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-wrong.Type.Bits()))
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		wanted = "a whole number"
	}
	where := "the body"
	if wrong.Field != "" {
		where = "field `" + wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:] + "`" // what comes before may name a type of Go
	}
	return fmt.Sprintf("%s is %s, and must be %s", where, wrong.Value, wanted)
}

// member is a required member of a body.
type member struct {
	name string
	set  bool
}

// firstMissing returns the name of the first member that is not there.
func firstMissing(members ...member) string {
	for _, m := range members {
		if !m.set {
			return m.name
		}
	}
	return ""
}

// routes answers by path and method. What is not there is an error in JSON.
type routes map[string]map[string]http.HandlerFunc

// ServeHTTP implements http.Handler.
func (routes routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	methods, known := routes[r.URL.Path]
	if !known {
		answer(w, http.StatusNotFound, failed{Error: "route not found"})
		return
	}
	handler := methods[r.Method]
	if handler == nil {
		answer(w, http.StatusMethodNotAllowed, failed{Error: "method not allowed"})
		return
	}
	handler(w, r)
}
