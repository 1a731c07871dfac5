// The search of a site that is opened from a disk: browsers then refuse workers, so the script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      this.inside = new Promise((resolve) => {
        frame.onload = () => {
          frame.onload = null
          const { contentWindow: inside, contentDocument: page } = frame
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
          const script = page.createElement("script")
          script.src = address
          script.onload = () => resolve(inside)
          page.body.append(script)
        }
      })
      document.body.append(frame)
    }

    async postMessage(data) {
      const inside = await this.inside
      inside.dispatchEvent(new inside.MessageEvent("message", { data }))
    }
  }
}
