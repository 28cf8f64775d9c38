// SPDX-License-Identifier: Apache-2.0
// A Worker for pages that are read from disk, where browsers allow none: the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      addEventListener("message", event => {
        if (event.source !== inside) return
        const message = new MessageEvent("message", { data: event.data })
        this.dispatchEvent(message)
        this.onmessage?.(message)
      })
      inside.document.open()
      inside.document.write(`<html><body><script>
        var postMessage = data => parent.postMessage(data, "*")
        var load = url => new Promise(done => {
          const script = document.createElement("script")
          script.src = url
          script.onload = done
          document.body.appendChild(script)
        })
        var importScripts = (...urls) => urls.reduce((before, url) => before.then(() => load(url)), Promise.resolve())
      <\/script></body></html>`)
      inside.document.close()
      this.ready = inside.load(new URL(url, location.href).href)
      this.inside = inside
      this.frame = frame
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
