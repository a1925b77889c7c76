package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"kurma.io/stager/internal/loopback"
)

// Text is an answer in the text format of Prometheus, version 0.0.4. The samples of a metric follow its Begin.
type Text struct{ bytes.Buffer }

// Begin writes the lines before a metric's samples.
func (t *Text) Begin(name string, kind Kind, help string) {
	fmt.Fprintf(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// Sample writes a value of a metric. Labels are names and values in turn.
func (t *Text) Sample(name string, value float64, labels ...string) {
	t.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		separator := byte(',')
		if i == 0 {
			separator = '{'
		}
		t.WriteByte(separator)
		fmt.Fprintf(t, "%s=\"%s\"", labels[i], escape(labels[i+1])) //nolint:gocritic // %q has escapes that the format lacks
	}
	if len(labels) > 0 {
		t.WriteByte('}')
	}
	fmt.Fprintf(t, " %s\n", strconv.FormatFloat(value, 'f', -1, 64))
}

// escape returns a label's value as the format has it, which is UTF-8.
func escape(value string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(strings.ToValidUTF8(value, "\uFFFD"))
}

// Readings writes the samples of containers, sorted by metric, with the labels that have a value.
func (t *Text) Readings(all []Readings) {
	for _, m := range Table() {
		begun := false
		for _, r := range all {
			for _, s := range r.Samples {
				if s.Name != m.Name {
					continue
				}
				if !begun {
					t.Begin(m.Name, m.Kind, m.Help)
					begun = true
				}
				t.Sample(s.Name, s.Value, labelled(LabelNames(m), r.LabelValues(s))...)
			}
		}
	}
}

// labelled returns names and values in turn, without those that are empty, which is the same for Prometheus.
func labelled(names, values []string) (all []string) {
	for i, value := range values {
		if value != "" {
			all = append(all, names[i], value)
		}
	}
	return all
}

// Serve serves the text of write as /metrics at an address of loopback.Listen until stop is called. Write runs once at
// a time, and not for a client that has gone before its turn.
func Serve(address string, write func(*Text) error) (stop func(), err error) {
	listener, err := loopback.Listen(address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics at %s: %w", address, err)
	}
	turn := make(chan struct{}, 1)
	handler := http.NewServeMux()
	handler.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-r.Context().Done():
			panic(http.ErrAbortHandler) // package http closes the connection, without an answer
		}
		text := new(Text)
		if err := write(text); err != nil {
			http.Error(w, strings.ReplaceAll(err.Error(), "\n", "; "), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(text.Bytes()) // a client that has gone
	})
	server, clients := loopback.Server(listener, handler)
	go func() { _ = server.Serve(clients) }()
	return func() { _ = errors.Join(server.Close(), listener.Close()) }, nil
}
