package body

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"signalbox/internal/jsontape"
)

func post(body io.Reader, length int64, contentType string) *http.Request {
	request := httptest.NewRequest(http.MethodPost, "/", body)
	request.ContentLength = length
	request.Header.Set("Content-Type", contentType)
	return request
}

func TestBodiesAreReadWhole(t *testing.T) {
	reader := NewReader(1)
	for _, size := range []int{0, 1, firstPiece - 1, firstPiece, firstPiece + 1, 1 << 20} {
		text := strings.Repeat("x", size)
		for _, length := range []int64{int64(size), -1} {
			got, p := reader.Raw(httptest.NewRecorder(), post(strings.NewReader(text), length, "application/json"))
			if p != nil || string(got) != text {
				t.Errorf("%d bytes, length %d: %d bytes, %v", size, length, len(got), p)
			}
		}
	}
}

// TestALengthAloneCostsNothing announces a large body of which nothing comes.
func TestALengthAloneCostsNothing(t *testing.T) {
	reader := NewReader(192)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, p := reader.Raw(httptest.NewRecorder(), post(strings.NewReader("{"), 192<<20, "application/json"))
	runtime.ReadMemStats(&after)
	if p == nil || p.Status != 400 || after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%+v, %d bytes", p, after.TotalAlloc-before.TotalAlloc)
	}
}

func TestRefusedBodies(t *testing.T) {
	reader := NewReader(1)
	long := strings.Repeat("x", 1<<20+1)
	for name, test := range map[string]struct {
		request *http.Request
		status  int
	}{
		"announced too long":  {post(strings.NewReader(long), int64(len(long)), "application/json"), 413},
		"too long":            {post(strings.NewReader(long), -1, "application/json"), 413},
		"shorter than it was": {post(strings.NewReader("x"), 10, "application/json"), 400},
		"text":                {post(strings.NewReader("{}"), 2, "text/plain"), 415},
		"no type":             {post(strings.NewReader("{}"), 2, ""), 415},
		"almost JSON":         {post(strings.NewReader("{}"), 2, "application/jsonx"), 415},
		"compressed": {func() *http.Request {
			r := post(strings.NewReader("{}"), 2, "application/json")
			r.Header.Set("Content-Encoding", "br")
			return r
		}(), 415},
	} {
		if text, p := reader.Raw(httptest.NewRecorder(), test.request); p == nil || p.Status != test.status || text != nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestABodyThatStopsIsGivenUp sends a part of a body and then nothing; a slow body that goes on is read, and the answer may take
// longer than the body was allowed to pause.
func TestABodyThatStopsIsGivenUp(t *testing.T) {
	reader := Reader{LimitBytes: 1 << 20, LimitMB: 1, IdleTimeout: 100 * time.Millisecond}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, p := reader.Raw(w, r)
		if p != nil {
			p.Write(w)
			return
		}
		select {
		case <-r.Context().Done():
			t.Error("the deadline of the body cancelled the request")
		case <-time.After(3 * reader.IdleTimeout):
		}
		_, _ = w.Write(text)
	}))
	defer server.Close()
	for name, test := range map[string]struct {
		head   string
		goesOn bool
		want   string
	}{
		"length, stops":   {"Content-Length: 10\r\n\r\n{", false, "HTTP/1.1 408"},
		"chunks, stop":    {"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", false, "HTTP/1.1 408"},
		"length, goes on": {"Content-Length: 10\r\n\r\n{", true, "HTTP/1.1 200"},
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+test.head); err != nil {
			t.Fatal(err)
		}
		for i := 0; test.goesOn && i < 9; i++ {
			if _, err := io.WriteString(conn, "x"); err != nil {
				t.Fatal(err)
			}
		}
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		answer := make([]byte, len(test.want))
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != test.want {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
		conn.Close()
	}
}

func fields(t *testing.T, text string) *Fields {
	t.Helper()
	document, err := jsontape.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return NewFields(document.Root(), "")
}

// TestNumbersKeepWithinTheirTypes reads bounds and what lies beyond them.
func TestNumbersKeepWithinTheirTypes(t *testing.T) {
	for text, test := range map[string]struct {
		read func(*Fields) bool // whether a value came
		ok   bool
		says string
	}{
		`{"v":255}`:                  {func(f *Fields) bool { return f.Uint8("v") != nil }, true, ""},
		`{"v":256}`:                  {func(f *Fields) bool { return f.Uint8("v") != nil }, false, "invalid value: integer `256`, expected u8"},
		`{"v":4294967295}`:           {func(f *Fields) bool { return f.Uint32("v") != nil }, true, ""},
		`{"v":4294967296}`:           {func(f *Fields) bool { return f.Uint32("v") != nil }, false, "expected u32"},
		`{"v":18446744073709551615}`: {func(f *Fields) bool { return f.Uint64("v") != nil }, true, ""},
		`{"v":18446744073709551616}`: {func(f *Fields) bool { return f.Uint64("v") != nil }, false, "expected u64"},
		`{"v":-1}`:                   {func(f *Fields) bool { return f.Uint64("v") != nil }, false, "invalid value: integer `-1`, expected u64"},
		`{"v":1.0}`:                  {func(f *Fields) bool { return f.Uint32("v") != nil }, false, "invalid type: floating point `1.0`, expected u32"},
		`{"v":-2147483648}`:          {func(f *Fields) bool { return f.Int32("v") != nil }, true, ""},
		`{"v":2147483648}`:           {func(f *Fields) bool { return f.Int32("v") != nil }, false, "expected i32"},
		`{"v":-9223372036854775808}`: {func(f *Fields) bool { return f.Int64("v") != nil }, true, ""},
		`{"v":9223372036854775808}`:  {func(f *Fields) bool { return f.Int64("v") != nil }, false, "expected i64"},
		`{"v":1}`:                    {func(f *Fields) bool { return f.Float64("v") != nil }, true, ""},
		`{"v":"1"}`:                  {func(f *Fields) bool { return f.Float32("v") != nil }, false, "invalid type: string \"1\", expected f32"},
		`{"v":null}`:                 {func(f *Fields) bool { return f.Bool("v") != nil || f.String("v") != nil || f.Uint8("v") != nil }, false, ""},
		`{}`:                         {func(f *Fields) bool { return f.Strings("v") != nil || f.TokenIDs("v") != nil || f.Raw("v") != nil }, false, ""},
		`{"v":["a",1]}`:              {func(f *Fields) bool { return f.Strings("v") != nil }, false, "invalid type: integer `1`, expected a string"},
		`{"v":[1,-1]}`:               {func(f *Fields) bool { return f.TokenIDs("v") != nil }, false, "expected u32"},
		`{"v":{}}`:                   {func(f *Fields) bool { return f.String("v") != nil }, false, "invalid type: map, expected a string"},
		`{"v":true}`:                 {func(f *Fields) bool { return f.String("v") != nil }, false, "invalid type: boolean `true`, expected a string"},
	} {
		f := fields(t, text)
		if got := test.read(f); got != test.ok {
			t.Errorf("%s: read %v", text, got)
		}
		switch {
		case test.says == "" && f.Problem != nil:
			t.Errorf("%s: %v", text, f.Problem)
		case test.says != "" && (f.Problem == nil || f.Problem.Param != "v" || !strings.Contains(f.Problem.Message, test.says) || !strings.HasPrefix(f.Problem.Message, DeserializePrefix)):
			t.Errorf("%s: %+v, want %q", text, f.Problem, test.says)
		}
	}
}

// TestTheFirstMistakeCounts: a body with two is answered with the first that was looked for.
func TestTheFirstMistakeCounts(t *testing.T) {
	f := fields(t, `{"a":"x","b":"y"}`)
	f.Uint8("b")
	f.Uint8("a")
	f.Missing("c")
	if f.Problem == nil || f.Problem.Param != "b" {
		t.Errorf("%+v", f.Problem)
	}
	if f := fields(t, `[]`); f.Problem == nil || !strings.Contains(f.Problem.Message, "expected a map") {
		t.Errorf("%+v", f.Problem)
	}
	f = fields(t, `{"a":null}`)
	if f.RequiredString("a"); f.Problem == nil {
		t.Error("null was taken for a string that must be there")
	}
}
