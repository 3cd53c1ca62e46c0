// Package top shows a server's console in a terminal: the pipeline, its actors,
// requests and steps, once a second.
package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"

	tea "charm.land/bubbletea/v2"

	"waybill/actors"
)

// Options say what to watch.
type Options struct {
	// URL is the server's, as http://host:port; Key its API key, or empty.
	URL, Key string
	// Once prints all views as text and returns: for scripts.
	Once bool
	// Out is where Once prints.
	Out io.Writer
}

// tabs are the views in the order of their keys.
var tabs = []string{"overview", "actors", "requests", "steps"}

// model is the terminal's state.
type model struct {
	url           string
	feed          *feed
	last          *actors.Snapshot
	steps         []actors.StepView // newest last
	err           error
	tab           int
	paused        bool
	width, height int
}

// keptSteps are shown in the steps' view at most.
const keptSteps = 200

// Run shows the server until q is pressed.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &feed{url: o.URL, key: o.Key, out: make(chan any)}
	go f.run(ctx)
	m := &model{url: o.URL, feed: f, width: 100, height: 40}
	if o.Once {
		return m.once(ctx, o.Out)
	}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(os.Stdout)).Run()
	return err
}

// sgr are the sequences that set colours and weight.
var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// once prints the second sample, the first that has rates.
func (m *model) once(ctx context.Context, out io.Writer) error {
	for seen := 0; seen < 2; {
		var got any
		select {
		case got = <-m.feed.out:
		case <-ctx.Done():
			return ctx.Err()
		}
		switch v := got.(type) {
		case error:
			return v
		case *actors.Snapshot:
			m.take(v)
			seen++
		}
	}
	m.height = 0
	for m.tab = range tabs {
		fmt.Fprintln(out, sgr.ReplaceAllString(m.screen(), ""))
	}
	return nil
}

// Init waits for the first sample.
func (m *model) Init() tea.Cmd { return m.next }

// next waits for a sample or an error.
func (m *model) next() tea.Msg { return <-m.feed.out }

// take keeps a sample.
func (m *model) take(s *actors.Snapshot) {
	m.err = nil
	m.steps = append(m.steps, s.Steps...)
	m.steps = m.steps[max(0, len(m.steps)-keptSteps):]
	if !m.paused {
		m.last = s
	}
}

// Update takes samples, keys and the terminal's size.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case *actors.Snapshot:
		m.take(msg)
		return m, m.next
	case error:
		m.err = msg
		return m, m.next
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch k := msg.String(); k {
		case "q", "ctrl+c", "esc":
			return m, tea.Quit
		case "p", "space":
			m.paused = !m.paused
		case "tab", "right", "l":
			m.tab = (m.tab + 1) % len(tabs)
		case "left", "h":
			m.tab = (m.tab + len(tabs) - 1) % len(tabs)
		default:
			if len(k) == 1 && k[0] >= '1' && int(k[0]-'0') <= len(tabs) {
				m.tab = int(k[0] - '1')
			}
		}
	}
	return m, nil
}

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	return v
}
